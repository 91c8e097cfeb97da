package envoyrules

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/pkg/rules"
)

// They have each field, and the table of fields too.
func TestEveryExampleInTheDocumentIsRead(t *testing.T) {
	text, err := os.ReadFile("../../../docs/rules.md")
	must(t, err)
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(examples) < 20 {
		t.Fatalf("found %d examples", len(examples))
	}
	var all strings.Builder
	for _, example := range examples {
		file := example[1]
		if strings.HasPrefix(file, "- ") {
			file = "rules:\n" + file
		}
		if _, err := Read([]byte(file)); err != nil {
			t.Errorf("%v in\n%s", err, file)
		}
		all.WriteString(file)
	}
	_, err = rules.Parse([]byte("rules: [{field: x}]"))
	fields := regexp.MustCompile(`\(want (.*)\)`).FindStringSubmatch(err.Error())
	if fields == nil {
		t.Fatal(err)
	}
	for _, field := range strings.Split(fields[1], ", ") {
		if !strings.Contains(all.String(), field+": ") && !strings.Contains(all.String(), field+":\n") {
			t.Errorf("no example has the field %s", field)
		}
		if !strings.Contains(string(text), "`"+field+"`") && !strings.Contains(string(text), "`"+field+", ") && !strings.Contains(string(text), ", "+field+"`") {
			t.Errorf("the field %s is not in the table", field)
		}
	}
}
