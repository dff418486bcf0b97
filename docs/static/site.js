// What the theme leaves to be desired for those who read with a keyboard or by ear.
document.addEventListener("DOMContentLoaded", () => {
  for (const box of document.querySelectorAll("pre, table.docutils")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
  for (const caption of document.querySelectorAll("p.caption[role=heading]")) caption.ariaLevel = 2;
  for (const summary of document.querySelectorAll("summary[aria-label]")) summary.removeAttribute("aria-label");
  document.querySelector("aside.sidebar-drawer")?.setAttribute("aria-label", "Site");
  document.querySelector("aside.toc-drawer")?.setAttribute("aria-label", "This page");
});
