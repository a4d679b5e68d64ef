// An editor for SQL: a text area with completion, over the same text in colours. Ctrl-Enter runs, Tab or Enter takes the
// word that is marked. What is read, selected and typed is the text area; the colours below it are for eyes only.
import { html, useRef, useState } from "../lib/html.js";
import { completions, tokens } from "../lib/sql.js";

export function Editor({ value, onChange, onRun, names }) {
  const element = useRef(null);
  const colours = useRef(null);
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
  const onScroll = (event) => {
    colours.current.scrollTop = event.target.scrollTop;
    colours.current.scrollLeft = event.target.scrollLeft;
  };
  return html`<div class="editor"><div class="layers">
    <pre ref=${colours} class="colours" aria-hidden="true">${tokens(value).map(([kind, text], index) => (kind ? html`<span key=${index} class=${kind}>${text}</span>` : text))}${"\n"}</pre>
    <textarea ref=${element} data-search rows="9" spellcheck="false" autocomplete="off" autocapitalize="off" aria-label="SQL" aria-autocomplete="list" aria-controls="sql-words" value=${value}
      placeholder="SELECT * FROM orders LIMIT 100" onInput=${onInput} onScroll=${onScroll} onKeyDown=${onKeyDown} onBlur=${() => setTimeout(close, 200)}></textarea></div>
    <ul id="sql-words" class="words" role="listbox" aria-label="Completions">${offered.options.map((each, index) => html`
      <li key=${each} role="option" aria-selected=${index === active ? "true" : "false"} onMouseDown=${(event) => { event.preventDefault(); take(each); }}>${each}</li>`)}</ul>
  </div>`;
}
