// The page about the HTTP API used to be at /docs: a link to one of its operations (/docs#publish_records) still works.
(() => {
  const name = decodeURIComponent(location.hash.slice(1));
  const isHome = document.documentElement.dataset.content_root === "./" && /\/docs\/$/.test(location.pathname);
  if (isHome && /^[a-z_]+$/.test(name) && !document.getElementById(name)) location.replace("api" + location.hash);
})();
