"""Cycles of a directed graph."""


def cycles(edges: set[tuple[str, str]]) -> list[list[str]]:
    """The groups of nodes that reach one another."""
    below: dict[str, set[str]] = {}
    for a, b in edges:
        below.setdefault(a, set()).add(b)
        below.setdefault(b, set())
    reach = {}
    for start in below:
        seen, todo = set(), [start]
        while todo:
            for node in below[todo.pop()] - seen:
                seen.add(node)
                todo.append(node)
        reach[start] = seen
    groups = {tuple(sorted(b for b in reach[a] if a in reach[b])) for a in below}
    return [list(group) for group in sorted(groups) if group]
