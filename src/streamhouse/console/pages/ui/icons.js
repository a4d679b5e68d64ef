// Icons as paths of SVG, 24 by 24.
import { html } from "../lib/html.js";

const PATHS = {
  overview: "M3 12l9-8 9 8M5 10v10h5v-6h4v6h5V10",
  topics: "M4 6h16M4 12h16M4 18h10",
  groups: "M9 11a3.5 3.5 0 100-7 3.5 3.5 0 000 7zM2.5 20c.5-4 3-6 6.500-6s6 2 6.500 6M16 4.500a3.500 3.500 0 010 6.500M17.500 14.500c2.300.700 3.700 2.500 4 5.500",
  schemas: "M8 3H6a2 2 0 00-2 2v5l-1.500 2L4 14v5a2 2 0 002 2h2M16 3h2a2 2 0 012 2v5l1.500 2-1.500 2v5a2 2 0 01-2 2h-2",
  transactions: "M4 8h14l-4-4M20 16H6l4 4",
  pipelines: "M4 5h5v5H4zM15 14h5v5h-5zM9 7.500h3.500a4 4 0 014 4V14",
  sql: "M4 6l5 5-5 5M12 18h8",
  tables: "M4 5h16v14H4zM4 10h16M10 10v9",
  agents: "M4 4h16v6H4zM4 14h16v6H4zM8 7h.01M8 17h.01",
  security: "M12 3l8 3v6c0 4.500-3.200 7.600-8 9-4.800-1.400-8-4.500-8-9V6z",
  settings: "M4 7h10M18 7h2M4 17h2M10 17h10M16 5v4M8 15v4",
  search: "M10.500 17a6.500 6.500 0 100-13 6.500 6.500 0 000 13zM20 20l-4.800-4.800",
  menu: "M4 6h16M4 12h16M4 18h16",
  theme: "M12 3a9 9 0 109 9 7 7 0 01-9-9z",
  close: "M6 6l12 12M18 6L6 18",
  out: "M10 4H5v16h5M14 8l4 4-4 4M18 12H9",
  plus: "M12 5v14M5 12h14",
  play: "M7 5l12 7-12 7z",
  stop: "M6 6h12v12H6z",
  help: "M9.500 9a2.500 2.500 0 115 0c0 2-2.500 2-2.500 4M12 17h.01M12 21a9 9 0 100-18 9 9 0 000 18z",
};

export const Icon = ({ name }) => html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;
