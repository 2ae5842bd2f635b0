"""Files: atomic writes, safe reads, typed records, and the edge files of the field (EAP-IG, MIB)."""
