"""Groups, kernel selection, memory and the plan."""
