
// Figures: pointing at a method greys the others and shows the value; its entry in the legend switches it off and on.
const tip = document.createElement("div");
tip.id = "tip";
tip.hidden = true;
document.body.append(tip);

function value(place, [low, high, from, to, logarithmic]) {
  const share = (place - from) / (to - from);
  return logarithmic ? low * (high / low) ** share : low + (high - low) * share;
}
function corners(mark) {
  // Places of a method's points in the picture: the corners of its line, and its markers.
  const found = [];
  for (const path of mark.querySelectorAll("path:not(defs path)")) {
    let x = 0, y = 0;  // by differences
    for (const [, right, down] of (path.getAttribute("d") || "").matchAll(/(-?[\d.]+) (-?[\d.]+)/g)) found.push([x += Number(right), y += Number(down)]);
  }
  for (const use of mark.querySelectorAll("use")) if (use.closest("g[clip-path]")) found.push([Number(use.getAttribute("x")), Number(use.getAttribute("y"))]);
  return found;
}
for (const svg of document.querySelectorAll("svg[data-plot]")) {
  const plot = JSON.parse(svg.dataset.plot);
  const marks = (line, kind) => svg.querySelectorAll(`.pv-${kind}-[data-line="${line}"]`);
  const points = plot.names.map((_, line) => Array.from(marks(line, "line")).filter((m) => m.querySelector("use") || !m.querySelector("defs")).flatMap(corners)
    .filter(([x, y]) => x >= plot.x[2] - 1 && x <= plot.x[3] + 1 && y <= plot.y[2] + 1 && y >= plot.y[3] - 1));
  const point = (line) => {
    svg.classList.toggle("pointed", line !== null);
    for (const m of svg.querySelectorAll(".pv-line-")) m.classList.toggle("on", Number(m.dataset.line) === line);
  };
  const hide = () => { tip.hidden = true; point(null); };
  svg.addEventListener("pointermove", (event) => {
    const own = svg.getScreenCTM();
    if (!own) return;
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(own.inverse());
    let best = [12, null, null];  // points of the picture
    points.forEach((places, line) => {
      if (marks(line, "line")[0].classList.contains("off")) return;
      for (const [x, y] of places) {
        const far = Math.hypot(x - at.x, y - at.y);
        if (far < best[0]) best = [far, line, [x, y]];
      }
    });
    if (best[1] === null) return hide();
    const [x, y] = best[2];
    const vertical = plot.of[1] ? `\n${plot.of[1]}: ${number(value(y, plot.y))}` : "";
    tip.textContent = `${plot.names[best[1]]}\n${plot.of[0]}: ${number(value(x, plot.x))}${vertical}`;
    tip.hidden = false;
    tip.style.left = `${Math.max(0, Math.min(event.pageX + 12, document.documentElement.clientWidth - tip.offsetWidth - 4))}px`;
    tip.style.top = `${event.pageY + 12}px`;
    point(best[1]);
  });
  svg.addEventListener("pointerleave", hide);
  const entries = svg.querySelectorAll(".pv-entry-");
  if (!entries.length) continue;
  svg.closest("[role=img]")?.setAttribute("role", "group");
  for (const entry of entries) {
    const line = Number(entry.dataset.line);
    const toggle = () => {
      const off = !entry.classList.contains("off");
      for (const m of [...marks(line, "line"), ...marks(line, "entry")]) m.classList.toggle("off", off);
      for (const m of marks(line, "entry")) if (m.hasAttribute("role")) m.setAttribute("aria-pressed", String(!off));
    };
    entry.addEventListener("click", toggle);
    entry.addEventListener("pointerenter", () => point(line));
    entry.addEventListener("pointerleave", () => point(null));
    if (!entry.querySelector("text")) continue;  // the entry's line, beside its text
    const shown = entry.textContent.trim(), full = plot.names[line];
    const label = shown === full ? full : `${shown} (${full})`;  // what is seen can be said to a screen reader
    for (const [name, content] of Object.entries({tabindex: "0", role: "button", "aria-pressed": "true", "aria-label": label})) entry.setAttribute(name, content);
    entry.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle(); } });
  }
}
