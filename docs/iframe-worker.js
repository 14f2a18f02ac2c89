// The theme searches in a worker, and browsers start no worker for a page that was opened as a
// file. There, this class runs the worker's script in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      this.started = new Promise((resolve) => {
        frame.addEventListener("load", async () => {
          const inside = frame.contentWindow;
          const load = (source) =>
            new Promise((done) => {
              const script = inside.document.createElement("script");
              script.src = source;
              script.onload = done;
              inside.document.head.append(script);
            });
          inside.postMessage = (data) =>
            this.dispatchEvent(new MessageEvent("message", { data }));
          inside.importScripts = (...sources) => Promise.all(sources.map(load));
          await load(url);
          resolve(inside);
        });
      });
      document.body.append(frame);
    }

    async postMessage(data) {
      const inside = await this.started;
      inside.dispatchEvent(new inside.MessageEvent("message", { data }));
    }

    terminate() {}
  };
}
