"""`make demo` as a newcomer runs it, held to what it promises."""
