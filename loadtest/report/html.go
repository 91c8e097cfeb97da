package report

import (
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/offpath-io/offpath/loadtest/result"
)

//go:embed page assets
var files embed.FS

var page = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"script": func(name string) (template.JS, error) { text, err := embedded(name); return template.JS(text), err },
	"style":  func(name string) (template.CSS, error) { text, err := embedded(name); return template.CSS(text), err },
	// A licence of a vendored file goes where the file goes.
	"notice": func(name string) (template.JS, error) {
		text, err := embedded(name)
		return template.JS("/*\n" + text + "*/"), err
	},
}).ParseFS(files, "page/*.html"))

// embedded is the text of a file of this package; only such is trusted to go into the page as it is.
func embedded(name string) (string, error) {
	text, err := files.ReadFile(name)
	return string(text), err
}

// HTML writes a result as one page that needs nothing beside itself: its style, its script and its data are inside, and it
// forbids itself any request. An error is w's, or says that the page could not be made.
func HTML(w io.Writer, f result.File) error {
	v := viewOf(f)
	data, err := json.Marshal(v.plots)
	if err != nil {
		return fmt.Errorf("encode charts: %w", err)
	}
	v.Data = data
	var text strings.Builder // so that a page is written whole or not at all
	if err := page.Execute(&text, v); err != nil {
		return fmt.Errorf("fill page: %w", err)
	}
	_, err = io.WriteString(w, text.String())
	return err
}
