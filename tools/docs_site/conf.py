"""Sphinx's settings for the documentation site. Nothing in a page comes from another host."""

from streamhouse import __version__

project = "StreamHouse"
author = "The StreamHouse authors"
version = release = __version__

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"
nitpicky = True

myst_heading_anchors = 4
myst_linkify_fuzzy_links = False

html_theme = "furo"
html_title = f"StreamHouse {__version__}"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_use_index = False
html_last_updated_fmt = None
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "api-link.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
templates_path = ["templates"]
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["api-anchor.js"]
html_favicon = "static/mark.svg"
html_theme_options = {
    "sidebar_hide_name": False,
    "light_logo": "mark.svg",
    "dark_logo": "mark.svg",
    "light_css_variables": {"color-brand-primary": "#0b7a70", "color-brand-content": "#0b7a70"},
    "dark_css_variables": {"color-brand-primary": "#2dd4bf", "color-brand-content": "#2dd4bf"},
    "footer_icons": [],
    "top_of_page_buttons": [],
}
pygments_style = "default"
pygments_dark_style = "github-dark"
