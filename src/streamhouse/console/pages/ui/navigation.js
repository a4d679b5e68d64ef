// The pages, their order in the navigation, and the key that follows `g`.
export const PAGES = [
  { id: "overview", label: "Overview", key: "o" },
  { id: "topics", label: "Topics", key: "t" },
  { id: "groups", label: "Groups", key: "g" },
  { id: "schemas", label: "Schemas", key: "s" },
  { id: "transactions", label: "Transactions", key: "x" },
  { id: "pipelines", label: "Pipelines", key: "p" },
  { id: "sql", label: "SQL", key: "q" },
  { id: "tables", label: "Tables", key: "b" },
  { id: "agents", label: "Agents", key: "a" },
  { id: "security", label: "Security", key: "u" },
  { id: "settings", label: "Settings", key: "e" },
];
