import { html } from "../lib/html.js";
import { PageHead } from "../ui/parts.js";
export const Page = () => html`<${PageHead} title="Settings" />`;
