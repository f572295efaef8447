//! What foreign text may not do to a terminal or a page.
