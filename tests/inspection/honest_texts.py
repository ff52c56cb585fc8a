"""Words of languages, some of which begin with opcodes, in Latin letters and others."""

# ruff: noqa: RUF001 - words as their authors write them

LANGUAGES = {
    "english": "the of and to in cat dog Paris Query Red None Is Very Good Stop I a b Rabbit Nothing Unknown Xenon",
    "german": "der die und in zu Katze Hund Vogel Schule Ich Gut Nacht Straße Übung ist Reich Platz Insel Fluss Licht",
    "french": "le la les et un chat chien Québec Île été Rue Non Sur Vie Paris Grand cœur ici garçon être où",
    "spanish": "el la los y un gato perro Sí No Río Verde Gran isla casa agua niño España ¿qué bien",
    "turkish": "bir ve bu kedi köpek İstanbul ışık gün Su Var Yok için çok şey güzel ırmak",
    "polish": "i w na kot pies Łódź Śląsk Nie Rok Sto Vistula gęś jeść są chrząszcz źle",
    "vietnamese": "và của là mèo chó Việt Nam Sông Người không được tiếng Rồng Gió Nước",
    "russian": "и в на кошка собака Москва Река Сон Имя Нет Путь Вода Город Лес Ночь",
    "greek": "και το να γάτα σκύλος Νερό Ρόδος Σπίτι Ιησούς Φως Γη",
    "arabic": "و في من قطة كلب بيت ماء نور كتاب مدرسة",
    "hebrew": "של את על חתול כלב בית מים אור ספר",
    "hindi": "और के में बिल्ली कुत्ता घर पानी किताब सूरज",
    "thai": "และ ของ แมว หมา บ้าน น้ำ หนังสือ ดวงอาทิตย์",
    "chinese": "的 一 是 猫 狗 家 水 书 中国 北京 学校 你好",
    "japanese": "の に は 猫 犬 家 水 本 ねこ いぬ ネコ イヌ 東京 です",
    "korean": "이 그 저 고양이 개 집 물 책 서울 안녕하세요",
    "code": "self return import class def if else None True False () {} [] == != . , : ; 0 1 2 \\n \\t // /* */",
    "emoji": "😀 🐱 🐶 🚗 ❤️ 👍 🏳️‍🌈 👩‍💻 ™ © ½",
    "bytes": "Ġthe Ġof Ġand Ċ č Ń Ġcat Ġdog âĢĻ ãĤĴ Ġ( Ġ) Ġ. Ġ,",
}
