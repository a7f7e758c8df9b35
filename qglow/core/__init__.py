"""Element types, tensor types, errors, text and the pass machinery that both IRs share."""
