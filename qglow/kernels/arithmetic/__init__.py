"""Numbers in vectors: conversion, rescaling, logic and functions of one value."""
