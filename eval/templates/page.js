"use strict";
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try { chosen = localStorage.getItem("theme"); } catch { /* a file's page may have no storage */ }

  function show() {
    const theme = chosen ?? (dark.matches ? "dark" : "light");
    root.dataset.theme = theme;
    button.textContent = theme === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Use ${theme === "dark" ? "light" : "dark"} colours`);
  }

  button.addEventListener("click", () => {
    chosen = root.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("theme", chosen); } catch { /* then for this view only */ }
    show();
  });
  dark.addEventListener("change", show);
  show();
})();
