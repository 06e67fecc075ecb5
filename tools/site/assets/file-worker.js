// Browsers start no worker on pages opened from a disk (file://), and the search runs in a worker. There, this class
// replaces Worker: it runs the script in a hidden frame. Material reads the name IFrameWorker. On a server the browser's Worker stays.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.inner = frame.contentWindow;
      this.ready = new Promise((resolve) => {
        const inner = this.inner;
        inner.postMessageToPage = (data) => {
          const event = new MessageEvent("message", { data });
          this.dispatchEvent(event);
          if (this.onmessage) this.onmessage(event);
        };
        inner.started = resolve;
        inner.document.open();
        inner.document.write(`<!doctype html><script>
          window.deliver = (data) => window.dispatchEvent(new MessageEvent("message", { data }));
          window.postMessage = (data) => window.postMessageToPage(data);
          window.importScripts = (...urls) => urls.reduce((done, url) => done.then(() => new Promise((resolve, reject) => {
            const script = document.createElement("script");
            script.src = url;
            script.onload = resolve;
            script.onerror = reject;
            document.body.appendChild(script);
          })), Promise.resolve());
        <\/script><body><script src="${new URL(url, location.href)}" onload="started()"><\/script>`);
        inner.document.close();
      });
    }
    postMessage(data) {
      this.ready.then(() => this.inner.deliver(data));
    }
    terminate() {
      this.inner.frameElement.remove();
    }
  };
}
