"""report: what a run measured, as JSON, Markdown and a page with charts."""
