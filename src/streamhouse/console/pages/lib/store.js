// A value that components watch.
import { useEffect, useState } from "./html.js";

export function createStore(initial) {
  let value = initial;
  const watchers = new Set();
  return {
    get: () => value,
    set(next) {
      value = next;
      watchers.forEach((each) => each(next));
    },
    watch(watcher) {
      watchers.add(watcher);
      return () => watchers.delete(watcher);
    },
  };
}

export function useStore(store) {
  const [value, setValue] = useState(store.get());
  useEffect(() => {
    setValue(store.get());
    return store.watch(setValue);
  }, [store]);
  return value;
}
