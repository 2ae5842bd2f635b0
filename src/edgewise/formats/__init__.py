"""Files of the field: read strictly, written whole, as graphs and arrays [edge]."""
