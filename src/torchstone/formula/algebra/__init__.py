"""Expression -> polynomials, simpler forms, growth and limits."""
