"""The viewer: what it shows, as a value, and the page that shows it, as one file."""
