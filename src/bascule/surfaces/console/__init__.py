"""The console's door: pages on http://localhost:5051, and the calls they make.

One more `App` over the rows' routes, with an admission of its own: the API port keeps refusing every page. `web/` is
what is served, as plain files. May import `surfaces.http`, `kernel`, `foundation`.
"""
