"""Files: those of the field (EAP-IG, MIB), and the project's own result folder."""
