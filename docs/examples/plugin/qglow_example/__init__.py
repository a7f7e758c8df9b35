"""An operator (softsign), a target (listing) and a data source (waves) for qglow, found by entry points."""
