"""Models that benchmarks run on, with their data: labelled ones, and topologies with drawn weights."""
