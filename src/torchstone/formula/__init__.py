"""Module class -> what one call of it costs, as a formula."""
