"""The documentation: pages in Markdown, and what is generated into them."""
