"""What was found, for people: tables and words for terminals, figures, the viewer's page, exports."""
