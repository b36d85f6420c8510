// What the theme leaves out for readers without a mouse: levels of the captions, and scrolling by keyboard.
document.addEventListener("DOMContentLoaded", () => {
  for (const caption of document.querySelectorAll(".caption[role=heading]")) caption.setAttribute("aria-level", "2");
  const reach = () => {
    for (const box of document.querySelectorAll(".table-wrapper, pre")) if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  };
  reach();
  window.addEventListener("resize", reach);
});
