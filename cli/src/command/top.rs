//! `undercroft top`: the figures of a running server, live in a terminal. What they are is in
//! `top/figures.rs`, how they look in `top/view.rs`.

use std::io::{IsTerminal, Write, stderr, stdin, stdout};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::status::StatusOptions;
use crate::top::figures::Figures;
use crate::top::screen::{Key, Screen, Scrolled};
use crate::top::view::{self, Order, View};
use crate::top::{News, ask_again_and_again};

/// How long a key may wait for its effect.
const LOOK: Duration = Duration::from_millis(100);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
    /// End after so many looks, the first of which shows figures since the server's start
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Print the figures one after another, as it is done where the output is no terminal
    #[arg(long)]
    plain: bool,
    #[command(flatten)]
    server: StatusOptions,
}

impl Args {
    fn view<'a>(&'a self, lost: Option<&'a str>, width: usize, order: Order) -> View<'a> {
        View { uri: &self.server.uri, every: Duration::from_secs(self.every), lost, width, order }
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    // What is wrong with the options or the address is said on the usual screen.
    let first = args.server.stats()?;
    let mut figures = Figures::default();
    figures.take(&first, Instant::now());
    let (sender, news) = channel();
    let (server, every) = (args.server.clone(), Duration::from_secs(args.every));
    std::thread::spawn(move || ask_again_and_again(&server, every, &sender));
    if args.plain || !stdout().is_terminal() || !stdin().is_terminal() {
        return print(args, figures, &news);
    }
    let mut screen = Screen::new()?;
    let ended = watch(args, figures, &news, &mut screen);
    screen.leave();
    ended
}

/// Prints figures one after another.
fn print(args: &Args, mut figures: Figures, news: &Receiver<News>) -> Result<(), Error> {
    let mut looks = 0;
    loop {
        let mut out = stdout().lock();
        for line in view::lines(&figures, &args.view(None, 100, Order::default())) {
            writeln!(out, "{}", line.text)?;
        }
        writeln!(out)?;
        out.flush()?;
        drop(out);
        looks += 1;
        if args.count.is_some_and(|count| looks >= count) {
            return Ok(());
        }
        loop {
            match news.recv() {
                Ok(News::Stats(stats, at)) => break figures.take(&stats, at),
                Ok(News::Advice(advice)) => figures.advise(advice.as_ref()),
                Ok(News::Lost(why)) => writeln!(stderr(), "undercroft: {why}; trying again")?,
                Ok(News::End) | Err(_) => return Ok(()),
            }
        }
    }
}

/// Shows figures on the whole screen until somebody ends it.
fn watch(
    args: &Args,
    mut figures: Figures,
    news: &Receiver<News>,
    screen: &mut Screen,
) -> Result<(), Error> {
    let (mut lost, mut looks): (Option<String>, _) = (None, 1);
    let (mut scrolled, mut order, mut is_help) = (Scrolled::default(), Order::default(), false);
    loop {
        let lines = match is_help {
            true => view::help(),
            false => view::lines(&figures, &args.view(lost.as_deref(), screen.width()?, order)),
        };
        screen.show(&lines, &mut scrolled)?;
        if args.count.is_some_and(|count| looks >= count) {
            return Ok(());
        }
        loop {
            match screen.key()? {
                Key::End => return Ok(()),
                Key::Sort => order = order.next(),
                Key::Help => is_help = !is_help,
                key @ (Key::Down(_) | Key::Up(_) | Key::Left | Key::Right) => scrolled.follow(&key),
                Key::Resized => {}
                Key::None => match news.recv_timeout(LOOK) {
                    Ok(News::Stats(stats, at)) => {
                        figures.take(&stats, at);
                        (lost, looks) = (None, looks + 1);
                    }
                    Ok(News::Advice(advice)) => figures.advise(advice.as_ref()),
                    Ok(News::Lost(why)) => lost = Some(why),
                    Ok(News::End) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                    Err(RecvTimeoutError::Timeout) => continue,
                },
            }
            break;
        }
    }
}
