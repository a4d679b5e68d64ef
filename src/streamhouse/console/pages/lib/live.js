// Data that is loaded once, or again every few seconds while somebody looks.
import { useCallback, useEffect, useRef, useState } from "./html.js";

export const DENIED_MS = 60000; // rights change seldom, and each refusal is audited

// `load(signal)` is called again when `deps` change, and every `every` milliseconds; what was shown stays while it runs.
export function useData(load, deps = [], every = 0) {
  const [state, setState] = useState({ data: undefined, error: null, loading: true });
  const current = useRef(null);
  const run = useCallback(async () => {
    current.current?.abort();
    const abort = new AbortController();
    current.current = abort;
    try {
      const data = await load(abort.signal);
      if (!abort.signal.aborted) setState({ data, error: null, loading: false });
    } catch (error) {
      if (!abort.signal.aborted) setState((before) => ({ ...before, error, loading: false }));
      return error;
    }
    return null;
  }, deps);
  useEffect(() => {
    setState((before) => ({ ...before, loading: true }));
    let timer = 0;
    let stopped = false;
    const again = async () => {
      const error = document.hidden ? null : await run();
      if (every && !stopped) timer = setTimeout(again, error?.status === 403 ? Math.max(every, DENIED_MS) : every);
    };
    again();
    return () => {
      stopped = true;
      clearTimeout(timer);
      current.current?.abort();
    };
  }, [run, every]);
  return { ...state, reload: run };
}
