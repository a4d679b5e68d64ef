// An editor for SQL: a text area with completion. Ctrl-Enter runs, Tab or Enter takes the word that is marked.
import { html, useRef, useState } from "../lib/html.js";
import { completions } from "../lib/sql.js";

export function Editor({ value, onChange, onRun, names }) {
  const element = useRef(null);
  const [offered, setOffered] = useState({ word: "", options: [] });
  const [active, setActive] = useState(0);
  const close = () => setOffered({ word: "", options: [] });
  const onInput = async (event) => {
    onChange(event.target.value);
    setActive(0);
    setOffered(await completions(names, event.target.value.slice(0, event.target.selectionStart)));
  };
  const take = (option) => {
    const area = element.current;
    const start = area.selectionStart - offered.word.length;
    area.setRangeText(option, start, area.selectionStart, "end");
    onChange(area.value);
    close();
    area.focus();
  };
  const onKeyDown = (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "Enter") {
      event.preventDefault();
      close();
      onRun();
    } else if (offered.options.length && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      setActive((active + (event.key === "ArrowDown" ? 1 : -1) + offered.options.length) % offered.options.length);
    } else if (offered.options.length && (event.key === "Tab" || event.key === "Enter")) {
      event.preventDefault();
      take(offered.options[active]);
    } else if (offered.options.length && event.key === "Escape") {
      event.stopPropagation();
      close();
    }
  };
  return html`<div class="editor">
    <textarea ref=${element} data-search rows="9" spellcheck="false" autocomplete="off" autocapitalize="off" aria-label="SQL" aria-autocomplete="list" aria-controls="sql-words" value=${value}
      placeholder="SELECT * FROM orders LIMIT 100" onInput=${onInput} onKeyDown=${onKeyDown} onBlur=${() => setTimeout(close, 200)}></textarea>
    <ul id="sql-words" class="words" role="listbox" aria-label="Completions">${offered.options.map((each, index) => html`
      <li key=${each} role="option" aria-selected=${index === active ? "true" : "false"} onMouseDown=${(event) => { event.preventDefault(); take(each); }}>${each}</li>`)}</ul>
  </div>`;
}
