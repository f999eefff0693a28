"""The homes of operators and customers, and the times to live that are set there."""
