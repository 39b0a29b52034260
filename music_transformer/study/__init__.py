"""The paper's blind listening test: a page of pairs for listeners, and what their answers say."""
