export function attentionPanel(element, view, update) {
  return { render() {} };
}
