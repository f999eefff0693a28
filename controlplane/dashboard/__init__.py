"""The HTML face: pages for operators and customers. Views parse, call one function, render; no decisions here."""
