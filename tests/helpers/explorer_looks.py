"""Checks of a page's looks that run inside the browser, as accessibility checkers do them; each is JavaScript."""

from __future__ import annotations

_NAME = """
const text = (e) => ((e && e.textContent) || "").trim();
const byIds = (e) => (e.getAttribute("aria-labelledby") || "").split(" ").filter(Boolean);
const named = (e) => e.getAttribute("aria-label") || e.title || [...(e.labels || [])].some(text)
    || byIds(e).some((id) => text(document.getElementById(id)))
    || (!["SELECT", "INPUT", "UL", "SECTION", "ARTICLE"].includes(e.tagName) && text(e));
const kinds = "a, button, select, input, summary, [tabindex='0'], svg[role=img], section:not(.stage), article, nav";
return [...document.querySelectorAll(kinds)].filter((e) => e.getClientRects().length && !named(e))
    .map((e) => e.outerHTML.slice(0, 120));
"""

_CONTRAST = """
const parse = (c) => {
    const n = (c.match(/[\\d.]+/g) || []).map(Number);
    return n.length < 3 ? null : [...n.slice(0, 3), n.length > 3 ? n[3] : 1];
};
const linear = (v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
const light = (c) => 0.2126 * linear(c[0]) + 0.7152 * linear(c[1]) + 0.0722 * linear(c[2]);
const behind = (e) => {
    for (; e; e = e.parentElement) {
        const c = parse(getComputedStyle(e).backgroundColor);
        if (c && c[3] === 1) return c;
    }
    return [255, 255, 255, 1];
};
const filled = (e) => {  // a text of a picture stands on the last shape before it that holds its middle
    const box = e.getBoundingClientRect(), x = box.x + box.width / 2, y = box.y + box.height / 2;
    const shapes = [...e.ownerSVGElement.querySelectorAll("rect")].filter((s) => {
        const b = s.getBoundingClientRect(), before = s.compareDocumentPosition(e) & Node.DOCUMENT_POSITION_FOLLOWING;
        return before && b.left <= x && x <= b.right && b.top <= y && y <= b.bottom;
    });
    const fill = shapes.length ? parse(getComputedStyle(shapes[shapes.length - 1]).fill) : null;
    return fill && fill[3] === 1 ? fill : behind(e);
};
const found = new Map();
for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    const wide = e.getBoundingClientRect().width;
    if (!own || wide < 3 || e.closest(":disabled, title, option, [hidden], .hidden, .skip")) continue;
    const style = getComputedStyle(e), picture = e instanceof SVGElement;
    const ink = parse(picture ? style.fill : style.color), paper = picture ? filled(e) : behind(e);
    const [a, b] = [light(ink), light(paper)].sort((x, y) => y - x), ratio = (a + 0.05) / (b + 0.05);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const name = e.tagName + "." + (e.getAttribute("class") || "");
    if (ratio < (large ? 3 : 4.5)) found.set(name, ratio.toFixed(2) + " " + e.textContent.slice(0, 40));
}
return [...found.entries()].map((pair) => pair.join(": "));
"""

_LEVELS = """
return [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")].filter((h) => h.offsetParent).map((h) => +h.tagName[1]);
"""

_TABLES = """
return [...document.querySelectorAll("table")]
    .filter((t) => !t.caption || [...t.querySelectorAll("th")].some((h) => !h.scope))
    .map((t) => t.outerHTML.slice(0, 120));
"""


def controls_without_a_name() -> str:
    """Visible controls, pictures and regions that a screen reader could not name."""
    return _NAME


def faint_texts() -> str:
    """Visible texts whose contrast with what is behind them is below 4.5, or 3 where they are large (WCAG AA)."""
    return _CONTRAST


def heading_levels() -> str:
    """Levels of the visible headings, in the page's order."""
    return _LEVELS


def tables_without_headings() -> str:
    """Tables without a caption, or with a heading that does not say what it heads."""
    return _TABLES
