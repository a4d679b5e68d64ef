// Preact with htm's templates: text and attributes are escaped, nothing is ever parsed as HTML.
import { h, render, Fragment } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export const html = htm.bind(h);
export { render, Fragment };
export * from "../vendor/hooks.js";
