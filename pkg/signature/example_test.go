package signature_test

import (
	"fmt"
	"time"

	"github.com/offpath-io/offpath/pkg/signature"
)

// A reader with a public key takes what was signed for just this place.
func Example() {
	key, err := signature.NewKey() // "offpath keygen" makes one, and ParseKey reads it
	if err != nil {
		panic(err)
	}
	verifier, err := signature.NewVerifier(nil, key.Public())
	if err != nil {
		panic(err)
	}
	value, now := []byte("rules: []"), time.Now()
	text, err := key.Sign(signature.Claims{
		Bucket: "offpath-rules", Key: "rules", Operation: signature.Put, Version: signature.NextVersion(0, now),
	}, value)
	if err != nil {
		panic(err)
	}
	_, err = verifier.Verify(signature.Found{Bucket: "offpath-rules", Key: "rules", Value: value, Text: text}, now)
	fmt.Println(err)
	_, err = verifier.Verify(signature.Found{Bucket: "offpath-rules", Key: "other", Value: value, Text: text}, now)
	fmt.Println(err)
	// Output:
	// <nil>
	// refused: its signature is of something else
}
