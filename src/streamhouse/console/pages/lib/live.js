// Data that is loaded once, or again every few seconds while somebody looks.
import { AgentAway, isAgentAway } from "./api.js";
import { useCallback, useEffect, useRef, useState } from "./html.js";

export const DENIED_MS = 60000; // rights change seldom, and each refusal is audited

// A list of everything costs an agent as much as it is long: long ones are read less often.
const LISTED_AT_ONCE = 500;
export const byLength = (ms, list) => ms * Math.max(1, Math.ceil((list?.length ?? 0) / LISTED_AT_ONCE));

// `load(signal)` is called again when `deps` change, and every `every` milliseconds, or what `every` makes of the data;
// what was shown stays while it runs.
export function useData(load, deps = [], every = 0) {
  const [state, setState] = useState({ data: undefined, error: null, loading: true });
  const current = useRef(null);
  const last = useRef(null);
  const run = useCallback(async () => {
    current.current?.abort();
    const abort = new AbortController();
    current.current = abort;
    try {
      const data = await load(abort.signal);
      last.current = null;
      if (!abort.signal.aborted) setState({ data, error: null, loading: false });
      return { data };
    } catch (error) {
      last.current = error;
      if (!abort.signal.aborted) setState((before) => ({ ...before, error, loading: false }));
      return { error };
    }
  }, deps);
  useEffect(() => {
    setState((before) => ({ ...before, loading: true }));
    let timer = 0;
    let stopped = false;
    const again = async () => {
      const { data, error } = document.hidden ? {} : await run();
      const wait = typeof every === "function" ? every(data) : every;
      if (wait && !stopped) timer = setTimeout(again, error?.status === 403 ? Math.max(wait, DENIED_MS) : wait);
    };
    again();
    return () => {
      stopped = true;
      clearTimeout(timer);
      current.current?.abort();
    };
  }, [run]);
  // What found no agent is loaded when there is one again.
  useEffect(() => isAgentAway.watch((isAway) => !isAway && last.current instanceof AgentAway && run()), [run]);
  return { ...state, reload: run };
}
