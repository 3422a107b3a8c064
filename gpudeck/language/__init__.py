"""Languages that people type: filters, expressions, times, sizes."""
