package examples

import (
	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"

	"github.com/offpath-io/offpath/pkg/httplimit"
)

// Fiber limits what an app serves, by fiber's adaptor, which makes a copy of each request for
// net/http. It calls the next handler when the middleware has returned, so ChargeOn sees no status;
// and a request that waits does not see its client leave. There is no route before fiber has
// chosen; rules by path have to do.
func Fiber(checker httplimit.Checker) (*fiber.App, error) {
	limit, err := httplimit.New(checker, httplimit.Options{User: user})
	if err != nil {
		return nil, err
	}
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Use(adaptor.HTTPMiddleware(limit.Handler))
	app.Get("/hello/:name", func(c *fiber.Ctx) error { return c.SendString("hello") })
	return app, nil
}
