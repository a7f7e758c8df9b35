"""Jobs on the workers of a Dask cluster (the `distributed` package, the extra `cluster`)."""
