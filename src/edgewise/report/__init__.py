"""Reports: tables for the terminal, figures for the paper."""
