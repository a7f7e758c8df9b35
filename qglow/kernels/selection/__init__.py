"""Selection of kernels for instructions: all families of kernels, the choice by cost, and epilogues."""
