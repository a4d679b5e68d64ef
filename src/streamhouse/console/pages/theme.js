// Before anything is painted: the theme that was chosen, else the system's.
(() => {
  const chosen = localStorage.getItem("streamhouse.theme");
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
})();
